from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlmodel import Session, select

from models import Id, Photo, User, engine


class NewPhoto(BaseModel):
    user_id: Id
    caption: str


class AsNumber(BaseModel):
    id: int


app = FastAPI()


@app.post("/photos")
def create(new: NewPhoto) -> Photo:
    with Session(engine) as session:
        photo = Photo(**new.model_dump())
        session.add(photo)
        session.commit()
        session.refresh(photo)
        return photo


@app.get("/photos/{id}")
def read(id: int) -> Photo:
    with Session(engine) as session:
        return session.get(Photo, id)


@app.get("/number/{id}")
def number(id: int) -> AsNumber:
    return AsNumber(id=id)


with Session(engine) as session:
    user = session.exec(select(User.id)).first()
client = TestClient(app)
for given in (user, str(user)):
    made = client.post("/photos", json={"user_id": given, "caption": f"made with {given!r}"}).json()
    assert made["user_id"] == str(user)
with Session(engine) as session:
    assert session.exec(select(Photo.id).where(Photo.caption == made["caption"])).one() == int(made["id"])
assert client.get(f"/photos/{made['id']}").json() == made
assert client.get(f"/number/{made['id']}").text == '{"id":' + made["id"] + "}"

# Ids are text only in JSON.
assert Photo(id=1, user_id=2, caption="").model_dump() == {"id": 1, "user_id": 2, "caption": ""}
assert app.openapi()["components"]["schemas"]["Photo"]["properties"]["user_id"]["type"] == "string"
print("FastAPI: ids as text in both directions")
