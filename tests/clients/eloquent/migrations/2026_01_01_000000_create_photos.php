<?php
use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Migrations\Migration;
use Illuminate\Database\Schema\Blueprint;

return new class extends Migration
{
    public function up()
    {
        DB::schema()->create('users', function (Blueprint $table) {
            $table->bigInteger('id')->primary()->default(DB::raw('idgen.snowflake_next_id()'));
            $table->text('name')->unique();
            $table->text('city')->nullable();
        });
        DB::schema()->create('photos', function (Blueprint $table) {
            $table->bigInteger('id')->primary()->default(DB::raw('idgen.snowflake_next_id()'));
            $table->foreignId('user_id')->constrained();
            $table->text('caption');
        });
    }
};
